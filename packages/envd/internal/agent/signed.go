package agent

// Verifies the calls of the node, which are signed because code inside the sandbox, which can read the public key, must not be able to make them.

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"svc/envd/internal/failure"
)

const (
	nonceHeader     = "X-Svc-Init-Nonce"
	signatureHeader = "X-Svc-Init-Signature"
	relayWindow     = 5 * time.Minute
)

// Verifier holds the node's public key; without one no signature is valid.
type Verifier struct{ key ed25519.PublicKey }

// NewVerifier parses the key from the flag's encoding.
func NewVerifier(encoded string) (*Verifier, error) {
	if encoded == "" {
		return &Verifier{}, nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("-init-key must be the base64 of a raw Ed25519 public key of %d bytes", ed25519.PublicKeySize)
	}
	return &Verifier{key}, nil
}

func (v *Verifier) present() bool { return v.key != nil }

// verify checks the header pair over purpose, nonce and subject, and returns the nonce.
func (v *Verifier) verify(r *http.Request, purpose, subject string) (uint64, error) {
	if !v.present() {
		return 0, failure.New(failure.Unauthenticated, "this envd was started without -init-key: nobody can sign for it")
	}
	text := r.Header.Get(nonceHeader)
	nonce, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, failure.New(failure.Unauthenticated, "%s must be a decimal number, got '%.40s'", nonceHeader, text)
	}
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(signatureHeader))
	if err != nil || !ed25519.Verify(v.key, []byte(purpose+"\n"+text+"\n"+subject), signature) {
		return 0, failure.New(failure.Unauthenticated, "%s does not fit this request", signatureHeader)
	}
	return nonce, nil
}

func (v *Verifier) verifyInit(r *http.Request, body []byte) (uint64, error) {
	sum := sha256.Sum256(body)
	return v.verify(r, "svc-init", hex.EncodeToString(sum[:]))
}

// verifyRelay only requires a nonce near the present time, since replaying a relay request is harmless.
func (v *Verifier) verifyRelay(r *http.Request, port string, now time.Time) error {
	nonce, err := v.verify(r, "svc-relay", port)
	if err != nil {
		return err
	}
	if age := now.Sub(time.UnixMilli(int64(min(nonce, 1<<62)))); age > relayWindow || age < -relayWindow {
		return failure.New(failure.Unauthenticated, "%s is %s from now, at most %s is taken", nonceHeader, age.Round(time.Second), relayWindow)
	}
	return nil
}
