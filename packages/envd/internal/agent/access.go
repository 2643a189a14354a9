package agent

// Access control: the access token, or for /files a signature made with it.

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

// admit passes a request on with the user it acts for in its context, or answers 401.
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
	case token == "" || r.URL.Path == "/health" || r.URL.Path == "/init": // /init has its own authentication.
		return nil
	case len(given) > 0:
		// The token is checked even if a signature would suffice, so that a wrong token is always an error.
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

// same compares digests, so that the time it takes reveals neither the length nor a common prefix.
func same(given, expected string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(expected))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// username returns the user from the query of /files, else from Basic authorization, else the sandbox's default.
func (a *Agent) username(identity *Identity, r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/files") {
		if name := r.URL.Query().Get("username"); name != "" {
			return name
		}
	}
	if name, rest, ok := r.BasicAuth(); ok && name != "" {
		// In NAME:GROUP: the last colon separates the user from a password, which is always empty here.
		if group, found := strings.CutSuffix(rest, ":"); found && group != "" {
			name += ":" + group
		}
		return name
	}
	return identity.DefaultUser
}
