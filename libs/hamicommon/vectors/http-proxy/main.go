// Command http-proxy prints which proxy Go's programs use for URLs, one environment on each line of a JSON array.
//
//	go run . > answers.json
package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

const proxy = "http://proxy.example:3128"

var names = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}

type row struct {
	Case        string            `json:"case"`
	Environment map[string]string `json:"environment"`
	// Proxies has the proxy of each URL, null if it is reached directly.
	Proxies map[string]*string `json:"proxies"`
}

// exclusions are values of NO_PROXY. Go is asked for every one of urls.
var exclusions = []string{
	"",
	"*",
	"10.0.0.0/8,*",
	"*,10.0.0.0/8",
	"10.0.0.0/8",
	"10.96.7.7/8",
	"10.0.0.0/08",
	"10.0.0.0/255.0.0.0",
	"10.0.0.0/33",
	"10.0.0.0/",
	"10.0.0.0/8:443",
	"0.0.0.0/0",
	"::/0",
	"fd00::/8",
	"FD00::/8",
	"[fd00::]/8",
	"::ffff:10.0.0.0/104",
	"::ffff:0:0/96",
	"::ffff:10.0.0.0/64",
	"10.96.0.1",
	"10.96.0.1:443",
	"10.96.0.1:6443",
	"010.96.0.1",
	"10.96",
	"10.",
	"10.*",
	"fd00::1",
	"FD00:0::1",
	"[fd00::1]",
	"[fd00::1]:443",
	"[fd00::1]:6443",
	"fd00::1%eth0",
	"::ffff:10.96.0.1",
	"[::ffff:10.96.0.1]:443",
	"example.com",
	".example.com",
	"*.example.com",
	"EXAMPLE.com",
	"example.com.",
	"example.com:443",
	"example.com:6443",
	"example.com:",
	".example.com:6443",
	"*.example.com:6443",
	"*example.com",
	"api.*.com",
	"com",
	".com",
	"ample.com",
	"http://example.com",
	"https://10.96.0.1",
	"bücher.example",
	"xn--bcher-kva.example",
	"svc",
	".svc,.cluster.local,10.0.0.0/8,localhost,127.0.0.1",
	".SVC",
	"default.svc",
	" 10.0.0.0/8 , .svc ",
	"10.0.0.0/8;.svc",
	"10.0.0.0/8 .svc",
	",,10.0.0.0/8,,",
	":443",
	"[]:443",
	"[",
	"]",
	"[example.com]:443",
	"a:b:c,10.0.0.0/8",
	"localhost",
	"127.0.0.0/8",
	".",
	"..",
	"*.",
	"*.*",
	"/8",
	"192.168.1.1/32",
	"172.16.0.0/12,192.168.0.0/16",
	"fe80::/10",
}

var urls = []string{
	"https://10.96.0.1",
	"https://10.96.0.1:443",
	"https://10.96.0.1:6443",
	"https://11.0.0.1:6443",
	"http://10.96.0.1",
	"https://192.168.1.1:6443",
	"https://127.0.0.1:6443",
	"https://127.9.9.9:6443",
	"https://[::1]:6443",
	"https://[::ffff:127.0.0.1]:6443",
	"https://[::ffff:10.96.0.1]",
	"https://[fd00::1]",
	"https://[fd00:0::1]:6443",
	"https://[fe80::1%25eth0]:6443",
	"https://localhost:6443",
	"https://LOCALHOST:6443",
	"https://localhost.example.com",
	"https://example.com",
	"https://example.com:6443",
	"https://EXAMPLE.com",
	"https://api.example.com",
	"https://api.example.com:6443",
	"https://notexample.com",
	"https://example.com.",
	"https://kubernetes.default.svc",
	"https://kubernetes.default.svc.cluster.local",
	"https://bücher.example",
	"https://xn--bcher-kva.example",
	"https://010.96.0.1",
	"https://svc",
}

// environments show which variable counts, and how a proxy may be written.
var environments = []map[string]string{
	{},
	{"HTTP_PROXY": proxy},
	{"http_proxy": proxy},
	{"HTTPS_PROXY": proxy},
	{"https_proxy": proxy},
	{"HTTPS_PROXY": "http://upper.example:1", "https_proxy": "http://lower.example:2"},
	{"HTTPS_PROXY": "", "https_proxy": "http://lower.example:2"},
	{"HTTP_PROXY": "http://upper.example:1", "http_proxy": "http://lower.example:2"},
	{"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "example.com", "no_proxy": "other.example"},
	{"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "", "no_proxy": "example.com"},
	{"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "other.example", "no_proxy": "example.com"},
	{"HTTPS_PROXY": "proxy.example:3128", "HTTP_PROXY": "proxy.example"},
	{"HTTPS_PROXY": "10.1.2.3:3128", "HTTP_PROXY": "10.1.2.3"},
	{"HTTPS_PROXY": "[fd00::3]:3128", "HTTP_PROXY": "[fd00::3]:3128"},
	{"HTTPS_PROXY": "http://user:pass@proxy.example:3128", "HTTP_PROXY": "user:pass@proxy.example:3128"},
	{"HTTPS_PROXY": "https://proxy.example:3129", "HTTP_PROXY": "HTTP://proxy.example:3129"},
	{"HTTPS_PROXY": "http://proxy.example:3128/", "HTTP_PROXY": "http://proxy.example"},
	{"HTTPS_PROXY": "socks5://proxy.example:1080", "HTTP_PROXY": "socks5://proxy.example:1080"},
}

func ask(name string, environment map[string]string, texts []string) row {
	for _, name := range names {
		os.Unsetenv(name)
	}
	for name, value := range environment {
		os.Setenv(name, value)
	}
	proxies := map[string]*string{}
	for _, text := range texts {
		asked, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		found, err := httpproxy.FromEnvironment().ProxyFunc()(asked)
		if err != nil {
			panic(err)
		}
		proxies[text] = nil
		if found != nil {
			used := found.String()
			proxies[text] = &used
		}
	}
	return row{name, environment, proxies}
}

func main() {
	var rows []row
	for number, environment := range environments {
		name := fmt.Sprintf("environment-%02d", number)
		rows = append(rows, ask(name, environment, []string{"https://example.com", "http://example.com"}))
	}
	for _, excluded := range exclusions {
		environment := map[string]string{"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": excluded}
		rows = append(rows, ask("NO_PROXY="+excluded, environment, urls))
	}
	var lines []string
	for _, found := range rows {
		var line strings.Builder
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(found); err != nil {
			panic(err)
		}
		lines = append(lines, strings.TrimSpace(line.String()))
	}
	fmt.Printf("[\n%s\n]\n", strings.Join(lines, ",\n"))
}
