"""The dashboard for `streamlit run dashboard/app.py`; `tailscope dashboard` adds its theme and options."""

from tailscope_dashboard import show

show()
