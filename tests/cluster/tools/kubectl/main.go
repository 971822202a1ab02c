// Package main is kubectl, unchanged: the command of k8s.io/kubectl at the version in go.mod.
//
// Built from that module and not from k8s.io/kubernetes, which cannot be required without replacing every
// one of its staging modules.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Credential plugins that a user's kubeconfig may name.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}
