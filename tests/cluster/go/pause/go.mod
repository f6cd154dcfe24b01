module onceflow.test/pause

go 1.26.0
