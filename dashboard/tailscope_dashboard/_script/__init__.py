"""The script that Streamlit runs, in a folder of its own: that folder goes first on the import path."""
