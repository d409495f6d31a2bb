"""The tabs of labs whose page alone would be too long, one module per lab; a subfolder, so that Streamlit takes none for a page."""
