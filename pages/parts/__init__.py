"""The tabs of labs whose page would grow too long; a subfolder, because Streamlit takes every file directly in ``pages/`` for a page."""
