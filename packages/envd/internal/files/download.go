package files

// GET /files: a file's bytes, with support for ranges, conditional requests and gzip.

import (
	"compress/gzip"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

func (s *Service) download(w http.ResponseWriter, r *http.Request) {
	who, path, err := s.callerAt(r.Context(), r.URL.Query().Get("path"))
	if err != nil {
		failure.Write(w, err)
		return
	}
	encoding, err := chooseEncoding(r.Header)
	if err != nil {
		failure.Write(w, err)
		return
	}
	file, err := openFile(who, path, unix.O_RDONLY)
	if err != nil {
		failure.Write(w, err)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		failure.Write(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": info.Name()}))
	header.Add("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache") // a file may change at any moment; conditions still save the body
	switch {
	case encoding == "gzip":
		sendGzipped(w, r, file)
	case info.Size() == 0:
		// Files of /proc report no size but have content.
		header.Set("Content-Type", "application/octet-stream")
		header.Set("Last-Modified", info.ModTime().UTC().Format(http.TimeFormat))
		_, _ = io.Copy(w, file)
	default:
		header.Set("Etag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
		http.ServeContent(w, r, "", info.ModTime(), file) // without a name, so the type is detected from the content alone
	}
}

func sendGzipped(w http.ResponseWriter, r *http.Request, file *os.File) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Encoding", "gzip")
	if r.Method == http.MethodHead {
		return
	}
	squeezed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if _, err := io.Copy(squeezed, file); err != nil {
		panic(http.ErrAbortHandler) // the status has been sent, so only breaking the stream can report the error
	}
	_ = squeezed.Close()
}

// chooseEncoding selects gzip if the client lists only gzip or prefers it. A list in which gzip is one of several is a library's default, and there plain bytes
// are faster: compressing costs more than loopback.
func chooseEncoding(header http.Header) (string, error) {
	accept := strings.ToLower(strings.Join(header.Values("Accept-Encoding"), ","))
	if strings.TrimSpace(accept) == "" {
		return "identity", nil
	}
	weight, any, named := map[string]float64{}, -1.0, 0
	for part := range strings.SplitSeq(accept, ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		coding = strings.TrimSpace(coding)
		q := 1.0
		if value, found := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q="); found {
			q, _ = strconv.ParseFloat(value, 64)
		}
		switch coding {
		case "":
		case "*":
			any = q
		default:
			weight[coding] = q
			named++
		}
	}
	gzipWeight, gzipNamed := weight["gzip"]
	if !gzipNamed {
		gzipWeight = max(any, 0)
	}
	identityWeight, identityNamed := weight["identity"]
	refused := (identityNamed && identityWeight == 0) || (!identityNamed && any == 0)
	switch {
	case refused && gzipWeight == 0:
		return "", failure.HTTP(http.StatusNotAcceptable, failure.InvalidArgument,
			"no acceptable encoding in '%s': identity and gzip can be had", accept)
	case refused, gzipNamed && gzipWeight > 0 && named == 1 && header.Get("Range") == "",
		identityNamed && gzipWeight > identityWeight && header.Get("Range") == "":
		return "gzip", nil
	}
	return "identity", nil
}
