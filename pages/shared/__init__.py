"""What all pages share; a subfolder, because Streamlit takes every file directly in ``pages/`` for a page."""
