// Package main is what the smoke test runs in pods: a server that tells how it ended, and a client.
//
//	probe serve ADDRESS TEXT   answers TEXT to every request; says "ended by SIGTERM" when it is
//	probe get URL              prints the answer, or fails after 20 seconds of trying
//	probe lookup NAME          prints the addresses of a name
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const patience = 20 * time.Second

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: probe serve ADDRESS TEXT | get URL | lookup NAME"))
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2], os.Args[3])
	case "get":
		get(os.Args[2])
	case "lookup":
		addresses, err := net.LookupHost(os.Args[2])
		fail(err)
		fmt.Println(addresses)
	}
}

func serve(address, text string) {
	listener, err := net.Listen("tcp", address)
	fail(err)
	go func() {
		fail(http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(answer, text)
		})))
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println("serving as user", os.Getuid())
	<-signals
	fmt.Println("ended by SIGTERM")
}

func get(url string) {
	client := http.Client{Timeout: 2 * time.Second}
	var last error
	for started := time.Now(); time.Since(started) < patience; time.Sleep(100 * time.Millisecond) {
		answer, err := client.Get(url)
		if last = err; err != nil {
			continue
		}
		_, err = io.Copy(os.Stdout, answer.Body)
		fail(err)
		return
	}
	fail(last)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}
