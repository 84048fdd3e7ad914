"""The fixture `tail_gate` of pytest: a test fails when requests became slower than a baseline.

pytest loads `_plugin` at every start, so that alone must stay light; the rest is imported by a test that
asks for the fixture.
"""
