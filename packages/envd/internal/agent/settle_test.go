package agent

// The changes of an identity to /etc, on copies of the files.

import "testing"

func TestANewHostnameReplacesTheLastAndKeepsTheRest(t *testing.T) {
	first := hostsWith([]byte("127.0.0.1 localhost\n10.0.0.1 db"), "", "one")
	second := string(hostsWith(first, "one", "two"))
	if want := "127.0.0.1 localhost\n10.0.0.1 db\n127.0.1.1 two " + hostsMark + "\n"; second != want {
		t.Errorf("%q", second)
	}
}

func TestTheLineOfTheFirstStartGoesAndNamesThatWereAddedToItStay(t *testing.T) {
	if got, want := string(hostsWith([]byte("127.0.1.1\tone\n::1 localhost\n"), "one", "two")), "::1 localhost\n127.0.1.1 two "+hostsMark+"\n"; got != want {
		t.Errorf("%q", got)
	}
	got := string(hostsWith([]byte("127.0.1.1 one app.local # mine\n"), "one", "two"))
	if want := "127.0.1.1 app.local # mine\n127.0.1.1 two " + hostsMark + "\n"; got != want {
		t.Errorf("%q", got)
	}
}

func TestANewNameserverReplacesTheLastAndNobodysOwn(t *testing.T) {
	const written = "nameserver 10.0.0.1\noptions timeout:2 attempts:2\n"
	for what, c := range map[string]struct{ old, last, now, want string }{
		"as the runtime wrote it":  {written, "", "10.9.9.9", "nameserver 10.9.9.9\noptions timeout:2 attempts:2\n"},
		"emptied":                  {"", "", "10.9.9.9", "nameserver 10.9.9.9\noptions timeout:2 attempts:2\n"},
		"no network any more":      {written, "", "", ""},
		"a server of one's own":    {"nameserver 8.8.8.8\n", "10.0.0.1", "10.9.9.9", "nameserver 8.8.8.8\n"},
		"ours beside one's own":    {"search a.b\nnameserver 10.0.0.1\nnameserver 8.8.8.8\n", "10.0.0.1", "10.9.9.9", "search a.b\nnameserver 10.9.9.9\nnameserver 8.8.8.8\n"},
		"an option of one's own":   {"nameserver 10.0.0.1\noptions ndots:5\n", "10.0.0.1", "10.9.9.9", "nameserver 10.9.9.9\noptions ndots:5\n"},
		"the last one not told us": {"nameserver 10.0.0.1\noptions ndots:5\n", "", "10.9.9.9", "nameserver 10.0.0.1\noptions ndots:5\n"},
	} {
		if got := string(resolverWith([]byte(c.old), c.last, c.now)); got != c.want {
			t.Errorf("%s: %q, not %q", what, got, c.want)
		}
	}
}

func TestANewBundleReplacesTheLastAndKeepsTheSystems(t *testing.T) {
	first := bundleWith([]byte("SYSTEM"), "ONE\n")
	second := string(bundleWith(first, "TWO\n"))
	if want := "SYSTEM\n" + caBegin + "TWO\n" + caEnd; second != want {
		t.Errorf("%q", second)
	}
	if alone := string(bundleWith(nil, "X\n")); alone != caBegin+"X\n"+caEnd {
		t.Errorf("%q", alone)
	}
}
