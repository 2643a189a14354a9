package failure

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Write answers a plain HTTP request with {"code":404,"message":"…"}.
func Write(w http.ResponseWriter, err error) {
	f := Of(err)
	status := f.HTTPStatus()
	body, _ := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, f.Message})
	header := w.Header()
	// Headers that describe the content would be wrong for the error.
	for _, name := range []string{"Content-Disposition", "Content-Encoding", "Etag", "Last-Modified"} {
		header.Del(name)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
