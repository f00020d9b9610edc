module hami.io/e2e/probe

go 1.24.0
