//go:build tools

package main

import _ "volcano.sh/apis/pkg/apis/batch/v1alpha1"
