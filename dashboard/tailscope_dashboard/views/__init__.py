"""The pages. Each has one `render()`: read the controls, ask for data, place the result."""
