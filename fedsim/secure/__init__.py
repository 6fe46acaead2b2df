"""Secure sums for anybody's Flower app: the server learns what a cohort's updates add up to, and no more.

On the server `SecureAggregation` stands around the app's own strategy (`strategy`, `coordinator`, `rounds`,
`fleet`). On the clients a mod masks what leaves the device (`client`). Both agree on the call for training
(`calls`) and on how numbers become words (`terms`). The protocol is that of `fedsim.trusted.masking`.

A user's app imports this package. So it needs neither torch nor a scenario, and it imports nothing from
`analytics`, `attacks` and `scenarios`: the app may have folders of these names.
"""
