// An S3-compatible server for tests: it keeps objects in memory, checks every signature, and creates one bucket at startup.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/rclone/gofakes3/signature"
)

func main() {
	bucket := flag.String("bucket", "test", "bucket to make")
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT; port 0 takes a free one, which is printed")
	flag.Parse()
	backend := s3mem.New()
	if err := backend.CreateBucket(*bucket); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	signature.StoreKeys(map[string]string{os.Getenv("AWS_ACCESS_KEY_ID"): os.Getenv("AWS_SECRET_ACCESS_KEY")})
	objects := gofakes3.New(backend).Server()
	fmt.Printf("ready at http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if code := signature.V4SignVerify(request); code != signature.ErrNone {
			refused := signature.GetAPIError(code)
			answer.Header().Set("Content-Type", "application/xml")
			answer.WriteHeader(refused.HTTPStatusCode)
			answer.Write(signature.EncodeAPIErrorToResponse(refused))
			return
		}
		objects.ServeHTTP(answer, request)
	})))
}
