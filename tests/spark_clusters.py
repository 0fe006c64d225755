"""A standalone Spark cluster on this machine's loopback: a master and workers as processes, which a test can kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """A master and workers of one core each; ``folder`` gets their logs."""

    def __init__(self, folder: Path, workers: int = 2, port: int | None = None) -> None:
        import pyspark

        self._home, self._folder = Path(pyspark.__file__).parent, folder
        self._port = port or free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self.master = self._begun("master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._wait()
        self.workers = [self.add_worker() for _ in range(workers)]

    @property
    def port(self) -> int:
        return self._port

    def add_worker(self) -> subprocess.Popen[bytes]:
        work = self._folder / "work"
        arguments = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
        return self._begun("worker.Worker", *arguments)

    def _begun(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        with (self._folder / "cluster.log").open("ab") as log:
            command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *arguments]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("the master did not come up")

    def kill(self, *processes: subprocess.Popen[bytes]) -> None:
        """Kill processes with their executors: those have the group of the worker that began them."""
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill(*self.workers, self.master)
