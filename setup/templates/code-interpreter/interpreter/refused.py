"""A request that cannot be served."""

from tornado.web import HTTPError


class Refused(HTTPError):
    def __init__(self, status_code: int, message: str):
        super().__init__(status_code)
        self.message = message

    def __str__(self):
        return self.message
