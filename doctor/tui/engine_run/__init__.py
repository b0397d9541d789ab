"""The engine as another program: started, watched and stopped, never imported."""
