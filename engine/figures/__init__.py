"""Pictures of results: one module per lab, each function Result -> plotly Figure. The only place that imports plotly.

Figures carry data colours only. Text, grid and background are left to the page that shows them, so that one figure
serves the light and the dark theme.
"""
