"""A caching HTTP proxy through which sandboxes without a network reach allowed hosts.

Layers: rules, cached_file and index_links are pure or nearly so; file_cache; settings and upstream; connection; proxy;
lazy_proxy starts a proxy for the first sandbox that needs one.  options adds the settings to a command line.
"""
