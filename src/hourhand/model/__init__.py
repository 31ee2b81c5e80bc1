"""Facts and rules. Pure: no await, no clock, no chance, no input or output."""
