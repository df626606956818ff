"""A browser without scripts, for tests that need a site's pages and no browser."""

CLIENT = """
import json, sys, urllib.error, urllib.parse, urllib.request
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({}))
pages = []
for url, form in json.loads(sys.argv[1]):
    body = urllib.parse.quote(form, safe='=&{}": ,').replace(' ', '+').encode() if form else None
    try:
        pages.append(opener.open(url, body, timeout=10).read().decode())
    except urllib.error.HTTPError as error:
        pages.append(str(error.code))
print(json.dumps(pages))
"""
"""Opens the pages of its argument, ``[[url, form], …]``, and prints them as JSON; of an error only its number."""
