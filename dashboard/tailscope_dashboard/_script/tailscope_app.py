"""What `streamlit run` is given: its folder goes first on the path, so nothing else lives here."""

from tailscope_dashboard import show

show()
