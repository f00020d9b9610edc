module hami.io/e2e/programs

go 1.24.0
