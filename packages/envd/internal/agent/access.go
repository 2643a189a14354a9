package agent

// Who may call: the access token, or for /files a signature made with it.

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const tokenHeader = "X-Access-Token"

// admit lets a request pass, with the user it acts for noted in it, or answers 401.
func (a *Agent) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity := a.state.Now()
		if err := a.mayPass(identity.AccessToken, r); err != nil {
			failure.Write(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(account.WithName(r.Context(), a.username(identity, r))))
	})
}

func (a *Agent) mayPass(token string, r *http.Request) error {
	given := r.Header.Values(tokenHeader)
	switch {
	case token == "" || r.URL.Path == "/health" || r.URL.Path == "/init": // /init has its own proof
		return nil
	case len(given) > 0:
		// Also where a signature would do: a wrong token is never overlooked.
		for _, value := range given {
			if !same(value, token) {
				return failure.New(failure.Unauthenticated, "%s is not this sandbox's access token", tokenHeader)
			}
		}
		return nil
	case r.URL.Path == "/files":
		return checkSignature(r.Method, r.URL.Query(), token, time.Now())
	case r.URL.Path == "/relay":
		return a.verifier.verifyRelay(r, r.URL.Query().Get("port"), time.Now())
	}
	return failure.New(failure.Unauthenticated, "this sandbox is secure: send its access token in %s", tokenHeader)
}

func checkSignature(method string, query url.Values, token string, now time.Time) error {
	if !query.Has("signature") {
		return failure.New(failure.Unauthenticated, "missing signature query parameter")
	}
	operation := "read"
	if method == http.MethodPost {
		operation = "write"
	}
	expires := query.Get("signature_expiration")
	parts := []string{query.Get("path"), operation, query.Get("username"), token}
	if expires != "" {
		parts = append(parts, expires)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	if !same(query.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])) {
		return failure.New(failure.Unauthenticated, "invalid signature")
	}
	if expires == "" {
		return nil
	}
	at, err := strconv.ParseInt(expires, 10, 64)
	if err != nil {
		return failure.New(failure.Unauthenticated, "signature_expiration must be unix seconds, got '%.40s'", expires)
	}
	if now.Unix() > at {
		return failure.New(failure.Unauthenticated, "signature is already expired")
	}
	return nil
}

// same compares digests, so that neither length nor prefix shows in the time it takes.
func same(given, expected string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(expected))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// username: the query of /files, else Basic authorization, else the sandbox's default.
func (a *Agent) username(identity *Identity, r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/files") {
		if name := r.URL.Query().Get("username"); name != "" {
			return name
		}
	}
	if name, rest, ok := r.BasicAuth(); ok && name != "" {
		// NAME:GROUP: — the last colon parts the user from a password, which nobody here has.
		if group, found := strings.CutSuffix(rest, ":"); found && group != "" {
			name += ":" + group
		}
		return name
	}
	return identity.DefaultUser
}
