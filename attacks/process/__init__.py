"""The process in which attacks run. It gets the view and the attack's settings, and can open nothing else.

`serve` is that process, `requests` are the questions that it answers, and `channel` is the socket in between.
`keeper` removes its working folder. `scenarios.run.attack_process` starts it and asks.
"""
