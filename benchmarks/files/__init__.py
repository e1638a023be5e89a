"""How long does `kai-py plan` take for a big cluster in a file?"""
