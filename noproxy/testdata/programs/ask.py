"""Reads pairs of a no_proxy list and a URL, each text followed by a NUL, and
prints a line for each pair: direct, proxy, or nothing for a URL that Requests
refuses. Nothing is connected to."""

import os
import sys

import requests


class Recorder(requests.adapters.BaseAdapter):
    """Notes how a request would be sent."""

    def send(self, request, proxies=None, **kwargs):
        proxy = requests.utils.select_proxy(request.url, proxies)
        response = requests.Response()
        response.status_code, response.url, response._content = 200, request.url, b""
        response.way = "proxy" if proxy else "direct"
        return response

    def close(self):
        pass


def ask(session, url):
    try:
        return session.get(url).way
    except (requests.RequestException, ValueError):
        return ""


for name in list(os.environ):
    if name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ["http_proxy"] = os.environ["https_proxy"] = "http://192.0.2.1:3128"
session = requests.Session()
for scheme in ("http://", "https://"):
    session.mount(scheme, Recorder())
texts = sys.stdin.buffer.read().decode().split("\0")
for no_proxy, url in zip(texts[0::2], texts[1::2]):
    os.environ["no_proxy"] = no_proxy
    print(ask(session, url))
