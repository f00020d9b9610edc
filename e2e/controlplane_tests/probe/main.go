// Command probe is the only program in the image of the cluster's tests. It serves, connects and lists files.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const timeout = 10 * time.Second

var commands = map[string]func(arguments []string) error{
	"ask":         ask,
	"environment": environment,
	"list":        list,
	"serve":       serve,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: probe ask HOST:PORT | environment | list FOLDER... | serve PORT")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers every request with the name of this machine, until it is killed.
func serve(arguments []string) error {
	listener, err := net.Listen("tcp", ":"+arguments[0])
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Println("serving as", name)
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(connection, name)
	}
}

func answer(connection net.Conn, name string) {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(timeout))
	if _, err := connection.Read(make([]byte, 4096)); err == nil {
		fmt.Fprintf(connection, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n%s", name)
	}
}

// ask prints the body of the answer from the server at the address.
func ask(arguments []string) error {
	connection, err := net.DialTimeout("tcp", arguments[0], timeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(connection, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	content, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(string(content), "\r\n\r\n")
	fmt.Println(body)
	return nil
}

func environment([]string) error {
	fmt.Println(strings.Join(os.Environ(), "\n"))
	return nil
}

// list prints the path of every entry of the folders. A missing folder has none.
func list(arguments []string) error {
	for _, folder := range arguments {
		entries, err := os.ReadDir(folder)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for _, entry := range entries {
			fmt.Println(folder + "/" + entry.Name())
		}
	}
	return nil
}
