"""A page for operators: what runs, what ran, what did not and why, and the acts that mend it (C11).

An ASGI application, to be served by itself or mounted under any prefix::

    app = Starlette(routes=[Mount("/tenure", create_app(service, auth=BasicAuth("ops", password)))])

It shows and changes nothing that `tenure.operating` would not. No owner token reaches a browser.
"""

try:
    from tenure.web.app import create_app
    from tenure.web.auth import Auth, BasicAuth
    from tenure.web.serving import serve
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "uvicorn"):
        raise
    raise ImportError(f"tenure.web needs {error.name}. Install it: pip install 'tenure[web]'") from error

__all__ = ["Auth", "BasicAuth", "create_app", "serve"]
