package agent

// What an identity changes in /etc, on copies.

import "testing"

func TestANewHostnameReplacesTheLastAndKeepsTheRest(t *testing.T) {
	first := hostsWith([]byte("127.0.0.1 localhost\n10.0.0.1 db"), "one")
	second := string(hostsWith(first, "two"))
	if want := "127.0.0.1 localhost\n10.0.0.1 db\n127.0.1.1 two " + hostsMark + "\n"; second != want {
		t.Errorf("%q", second)
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
