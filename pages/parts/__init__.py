"""Sections of pages that would be too long in one file."""
