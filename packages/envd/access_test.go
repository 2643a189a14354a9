package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// node signs requests as a node does.
type node struct {
	key   ed25519.PrivateKey
	nonce uint64
}

func newNode(t *testing.T) (*node, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &node{private, 100}, base64.StdEncoding.EncodeToString(public)
}

func (n *node) sign(purpose string, nonce uint64, subject string) http.Header {
	signature := ed25519.Sign(n.key, fmt.Appendf(nil, "%s\n%d\n%s", purpose, nonce, subject))
	return http.Header{
		"X-Svc-Init-Nonce":     {fmt.Sprint(nonce)},
		"X-Svc-Init-Signature": {base64.StdEncoding.EncodeToString(signature)},
	}
}

func (n *node) init(e *envd, nonce uint64, body string) answer {
	e.t.Helper()
	sum := sha256.Sum256([]byte(body))
	return e.ask("POST", "/init", strings.NewReader(body), n.sign("svc-init", nonce, hex.EncodeToString(sum[:])))
}

func TestOnlyTheNodeCanTellEnvdWhoItIsAndOnlyOnce(t *testing.T) {
	n, key := newNode(t)
	stranger, _ := newNode(t)
	e := start(t, "-init-key", key)
	envs := func() string { return string(e.ask("GET", "/envs", nil, nil).body) }
	body := `{"sandboxId":"i1","envVars":{"A":"1"}}`
	if got := n.init(e, 5, body); got.status != 204 || envs() != `{"A":"1"}` {
		t.Fatalf("%d %s, %s", got.status, got.body, envs())
	}
	other := `{"sandboxId":"i1","accessToken":"stolen","envVars":{"A":"2"}}`
	sum := sha256.Sum256([]byte(body))
	for what, got := range map[string]answer{
		"no signature":     e.ask("POST", "/init", strings.NewReader(other), nil),
		"a wrong key":      stranger.init(e, 6, other),
		"the same nonce":   n.init(e, 5, other),
		"an older nonce":   n.init(e, 4, other),
		"another body":     e.ask("POST", "/init", strings.NewReader(other), n.sign("svc-init", 7, hex.EncodeToString(sum[:]))),
		"another purpose":  e.ask("POST", "/init", strings.NewReader(other), n.sign("svc-relay", 8, hex.EncodeToString(sum[:]))),
		"a nonce in words": e.ask("POST", "/init", strings.NewReader(other), http.Header{"X-Svc-Init-Nonce": {"nine"}}),
	} {
		if got.status != 401 || !strings.HasPrefix(string(got.body), `{"code":401,"message":"`) || envs() != `{"A":"1"}` {
			t.Errorf("%s: %d %s, %s", what, got.status, got.body, envs())
		}
	}
	if got := n.init(e, 9, `{"hostname":"not a name"}`); got.status != 400 || envs() != `{"A":"1"}` {
		t.Errorf("a bad body changed something: %d %s", got.status, envs())
	}
	if got := n.init(e, 10, `{}`); got.status != 204 || envs() != `{"A":"1"}` {
		t.Errorf("an init changes what it does not name: %d %s", got.status, envs())
	}
	if got := n.init(e, 3, `{}`); got.status != 401 || got.header.Get("X-Svc-Init-Nonce") != "10" {
		t.Errorf("a node whose clock was set back does not learn the last nonce: %d %v", got.status, got.header)
	}
	if got := n.init(e, 11, `{"envVars":{}}`); got.status != 204 || envs() != `{}` {
		t.Errorf("an init does not clear what it names as empty: %d %s", got.status, envs())
	}
}

func TestWithoutAKeyInitIsRefusedUnlessAskedFor(t *testing.T) {
	if got := start(t).ask("POST", "/init", strings.NewReader(`{}`), nil); got.status != 401 {
		t.Fatal(got.status)
	}
	if got := start(t, "-debug-init").ask("POST", "/init", strings.NewReader(`{}`), nil); got.status != 204 {
		t.Fatal(got.status)
	}
}

func secured(t *testing.T) (*envd, *node, string) {
	t.Helper()
	n, key := newNode(t)
	e := start(t, "-init-key", key)
	token := strings.Repeat("0123456789abcdef", 4)
	if got := n.init(e, 1, `{"accessToken":"`+token+`"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return e, n, token
}

func TestASecureSandboxAsksForItsToken(t *testing.T) {
	e, _, token := secured(t)
	good, bad := http.Header{"X-Access-Token": {token}}, http.Header{"X-Access-Token": {token + "x"}}
	for _, path := range []string{"/envs", "/metrics", "/relay?port=1", "/nothing", "/files/compose"} {
		for _, header := range []http.Header{nil, bad} {
			if got := e.ask("GET", path, nil, header); got.status != 401 || !strings.Contains(string(got.body), `"code":401`) {
				t.Errorf("%s with %v: %d %s", path, header, got.status, got.body)
			}
		}
		if got := e.ask("GET", path, nil, good); got.status == 401 {
			t.Errorf("%s with the token: %d", path, got.status)
		}
	}
	if status, _ := e.call("process.Process/List", m{}, good); status != 200 {
		t.Error(status)
	}
	if got := e.ask("POST", "/process.Process/List", strings.NewReader("{}"), http.Header{"Content-Type": {"application/json"}}); got.status != 401 {
		t.Error(got.status)
	}
	if got := e.ask("GET", "/health", nil, nil); got.status != 204 {
		t.Error(got.status)
	}
}

func TestASignatureOpensOneFileForOneUse(t *testing.T) {
	e, _, token := secured(t)
	path := t.TempDir() + "/f"
	sign := func(operation, expires string) string {
		text := path + ":" + operation + "::" + token
		if expires != "" {
			text += ":" + expires
		}
		sum := sha256.Sum256([]byte(text))
		return "v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "=")
	}
	at := func(signature, expires string) string {
		query := url.Values{"path": {path}, "signature": {signature}}
		if expires != "" {
			query.Set("signature_expiration", expires)
		}
		return "/files?" + query.Encode()
	}
	soon, past := fmt.Sprint(time.Now().Unix()+60), fmt.Sprint(time.Now().Unix()-60)
	if got := e.ask("POST", at(sign("write", ""), ""), strings.NewReader("text"), octets); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for _, query := range []string{at(sign("read", ""), ""), at(sign("read", soon), soon)} {
		if got := e.ask("GET", query, nil, nil); got.status != 200 || string(got.body) != "text" {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	for message, got := range map[string]answer{
		"invalid signature":                 e.ask("GET", at(sign("write", ""), ""), nil, nil),
		"signature is already expired":      e.ask("GET", at(sign("read", past), past), nil, nil),
		"missing signature query parameter": e.ask("GET", filesAt(path), nil, nil),
		"access token":                      e.ask("GET", at(sign("read", ""), ""), nil, http.Header{"X-Access-Token": {"wrong"}}),
	} {
		if got.status != 401 || !strings.Contains(string(got.body), message) {
			t.Errorf("%s: %d %s", message, got.status, got.body)
		}
	}
	if got := e.ask("GET", at(sign("read", past), soon), nil, nil); got.status != 401 || !strings.Contains(string(got.body), "invalid signature") {
		t.Errorf("another expiry: %d %s", got.status, got.body)
	}
}

func TestMetricsHaveEveryField(t *testing.T) {
	got := start(t).ask("GET", "/metrics", nil, nil)
	for _, field := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "disk_used", "disk_total"} {
		if !strings.Contains(string(got.body), `"`+field+`":`) {
			t.Errorf("no %s in %s", field, got.body)
		}
	}
}
