"""Which traces are kept, and what each that is kept stands for."""
