"""What NeMo Gym starts as `resources_servers/envbuild/app.py`: copy or link it there."""

from envbuild.train.nemo import EpisodeResourcesServer

if __name__ == "__main__":
    EpisodeResourcesServer.run_webserver()
