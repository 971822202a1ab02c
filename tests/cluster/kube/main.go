// Package main is every Kubernetes component of the dev cluster in one program, chosen by the first
// argument: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kube-proxy.
//
// One program, because the components share nearly all their code: one link instead of six, and one file
// to keep in the cache. The idea is that of hyperkube (https://github.com/kubernetes/hyperkube) and of k3s.
// It adds nothing of its own to a component: each one is the stock command with its stock flags.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
}

func main() {
	if len(os.Args) < 2 {
		usage("no component named")
	}
	name := os.Args[1]
	if name == "etcd" {
		etcdmain.Main(os.Args[1:])
		return
	}
	build, known := components[name]
	if !known {
		usage(fmt.Sprintf("unknown component %q", name))
	}
	command := build()
	// The kubelet parses its flags itself and takes them from here; the others from cobra.
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}

func usage(problem string) {
	names := []string{"etcd"}
	for name := range components {
		names = append(names, name)
	}
	fmt.Fprintf(os.Stderr, "kube: %s; one of: %s\n", problem, strings.Join(names, ", "))
	os.Exit(2)
}
