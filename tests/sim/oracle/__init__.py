"""A second simulator, slow and plain, to compare the first with: written apart from it.

Everything is an exact fraction, every domain, group and sequence is looked at one by one, and a
simpy process stands for each GPU. It shares no code with `nonuniform.sim` nor with the shapes of
`nonuniform.placement`; only the values that go in.
"""
