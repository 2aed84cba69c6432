"""The web page of the service: a form, the readings of a key, and one reading as it goes.

Everything works with plain forms and links; the script adds what they cannot do: the memory while it changes, dropped
files, and errors that leave the form as it is. The policy allows our style and script only, so all is under /static.
"""
