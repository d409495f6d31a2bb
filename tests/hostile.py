"""Links that nobody means well with: for the code that settles them and for the running app."""

from hypothesis import strategies as st

WORDS = (
    "nonsense", "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "[a](javascript:alert(1))", "$\\href{javascript:alert(1)}{x}$",
    "../../etc/passwd", "..\\..\\windows", "/etc/passwd", "/proc/self/environ", "file:///etc/passwd", "https://example.org/model", "~/.ssh",
    "nan", "NaN", "inf", "-inf", "1e999", "-1e999", "1e400", "0x10", "1_000", "٣", "²", "½", "٤٫٥", "1,2", "1;2", "01", "+1", "-0", "--1", "1e", ".",
    "null", "None", "true", "True", "[]", "{}", "{{7*7}}", "${7*7}", "%s%s%n", "%00", "\x00", "\u202e", "\ud7ff", "\ufffd", "🦊", "a\u0301" * 9,
    "', 1); DROP TABLE heads; --", "__import__('os').system('id')", "__class__", "constructor", "1.1.1", "0.0,99.99", ",,,", "0.0," * 50,
    "", " ", "\n", "\r\nX: y",
)  # fmt: skip
RESERVED = ("present", "embed", "embed_options", "tab", "page", "__proto__", "st.session_state", "_notes")

values = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=30),
    st.floats().map(str),
    st.integers(-(10**30), 10**30).map(str),
    st.builds(lambda word, times: (word * times)[:100_000], st.sampled_from(WORDS), st.sampled_from((2, 100, 20_000))),
)


def links(names):
    """Return a strategy of links: (name, value) pairs of a page's own settings and of others, some of them more than once."""
    return st.lists(st.tuples(st.one_of(st.sampled_from((*names, *RESERVED)), st.text(max_size=10)), values), max_size=6)
