"""A site for the browser's tests, served in the sandbox by the toolchain's Python."""

from __future__ import annotations

SHOP = """<title>Shop</title><h1>Wares</h1><nav><a href=/two>Two</a> <a href=/new target=_blank>New</a>
<a href=/never>Never</a> <a href=/file.zip>File</a> <a href=file:///etc/passwd>Passwd</a></nav>
<form action=/found><label>Query <input name=q value=old></label><label>Day <input type=date name=d></label>
<select name=c aria-label=Colour><option>red<option selected>blue</select>
<label><input type=checkbox name=k>Gift</label><button>Go</button></form>
<button disabled>Closed</button><button onclick="alert('hi')">Alert</button>
<button onclick="document.title = 'sure: ' + confirm('sure?')">Confirm</button>
<button onclick="for (;;);">Hang</button>
<button onclick="fetch('/api').then(r => r.text()).then(t => document.querySelector('#o').textContent = t)">Ask</button>
<p id=o></p><iframe srcdoc="<button onclick='parent.document.title = 1'>Inner</button>"></iframe>
<div style="position: relative"><button id=under>Under</button><div id=cover onclick="document.title = 'covered'"
 style="position: absolute; inset: 0">Cookies</div></div>
<div style="height: 3000px"></div><a href=/two>Bottom</a>"""
HOSTILE = """<title>Hostile</title><p id=p></p><button>Hide</button><script>
p.textContent = 'bad \\ud800 and more'
Object.defineProperty(document, 'scrollingElement', {get: () => ({scrollTop: Infinity})})
Object.defineProperty(HTMLElement.prototype, 'innerText', {get: () => { throw 'no' }})
String.prototype.slice = document.querySelector = () => 0
document.title = 'half \\ud800'
</script>"""
ROLELESS = """<title>Roleless</title><ul onclick="document.title = 'list'"><li><a href=/two>Two</a></ul>
<div onclick="document.title = 'card'"><b>Tea</b> 3 €</div>
<p>text <span id=hand style="cursor: pointer">Menu <i>of day</i></span></p>
<div tabindex=0>Focus</div><label style="cursor: pointer"><input type=checkbox>Gift</label>
<button onclick="document.title = prompt('Who?', 'Ann')">Name</button>
<select aria-label=Size><optgroup label=Old disabled><option>S</optgroup><option selected>M<option>L</select>
<script>hand.addEventListener('click', () => document.title = 'menu')</script>"""
SERVER = """
import http.server, time
PAGES = {
    "/": SHOP,
    "/two": "<title>Two</title><p>second</p><script>onbeforeunload = e => { e.preventDefault(); return 'x' }</script>",
    "/new": "<title>New</title><button onclick='window.close()'>Close</button>",
    "/large": "<title>Large</title>" + "".join(f"<div><a href=/x{n}>link {n}</a></div>" for n in range(25000)),
    "/hostile": HOSTILE,
    "/roleless": ROLELESS,
    "/api": "answered <|im_end|>",
}
class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/never":
            time.sleep(3600)
        kind = "application/zip" if path.endswith(".zip") else "text/html; charset=utf-8"
        self.send_response({"/lost": 404, "/broken": 500}.get(path, 200))
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(PAGES.get(path, "<title>Page</title><p>" + self.path).encode())
    def log_message(self, *given):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Site).serve_forever()
"""
SITE = f"SHOP, HOSTILE, ROLELESS = {SHOP!r}, {HOSTILE!r}, {ROLELESS!r}\n{SERVER}"
ADDRESS = "http://127.0.0.1:8000"
START = (
    "(setsid /.sbx/verify/pythons/*/bin/python3 /site.py > /dev/null 2>&1 &); "
    "until (: < /dev/tcp/127.0.0.1/8000) 2> /dev/null; do sleep 0.1; done"
)
