"""Pure rules over a snapshot: fair share, order, fit, score, victims. No I/O, no clock."""
