module example.invalid/http-proxy

go 1.24.0

require golang.org/x/net v0.48.0

require golang.org/x/text v0.32.0 // indirect
