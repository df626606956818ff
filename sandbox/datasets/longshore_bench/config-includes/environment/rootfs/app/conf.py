"""conf.py FILE [NAME]: see SPEC.md"""

import os
import re
import sys

settings = {}
section = ""


def load(path):
    global section
    for line in open(path):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            section = line[1:-1]
        elif line.startswith("include"):
            load(line.split()[1])
        elif "+=" in line:
            key, value = line.split("+=")
            settings[section + "." + key.strip()] += "," + parse(value)
        else:
            key, value = line.split("=")
            settings[section + "." + key.strip()] = resolve(parse(value))


def parse(value):
    value = value.strip().split("#")[0]
    if value.startswith('"'):
        value = value.strip('"').replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    return value


def resolve(value):
    return re.sub(r"\$\{([^}]*)\}", lambda found: settings.get(found[1], os.environ.get(found[1], "")), value)


load(sys.argv[1])
if len(sys.argv) > 2:
    print(settings[sys.argv[2]])
else:
    for name in settings:
        print(name + "=" + settings[name])
