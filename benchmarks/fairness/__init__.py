"""How fairly are GPUs shared over a week of bursts?"""
