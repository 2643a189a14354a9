module svc/object-server

go 1.24.0

require (
	github.com/johannesboyne/gofakes3 v1.2.0
	github.com/rclone/gofakes3 v0.0.12
)

require (
	github.com/minio/xxml v0.0.3 // indirect
	github.com/ryszard/goskiplist v0.0.0-20150312221310-2dfbae5fcf46 // indirect
	go.shabbyrobe.org/gocovmerge v0.0.0-20230507111327-fa4f82cfbf4d // indirect
	golang.org/x/tools v0.40.0 // indirect
)
